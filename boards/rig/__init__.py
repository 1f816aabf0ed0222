"""The rig: flash, install, check and judge every board on the desk, in parallel.

``desk`` is what there is: boards, ports, locks, power; ``commands`` are the verbs. In a run the
parent (``crew``, ``show``, ``events``) schedules and writes; one ``worker`` process per board owns
the board's serial port and runs ``steps`` and ``checks``, talking to the board through ``agent``
and to the broker through ``observer``. Between boards and broker stands ``proxy``, which can break
the line. ``junit`` and ``markdown`` are made from the events alone; ``pytest_plugin`` gives the
same boards to pytest.
"""
