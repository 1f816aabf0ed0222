"""What was installed is what runs: a board forgets what it had imported before."""

from pathlib import Path

from boards.repl import Repl
from boards.session.installation import copy_node, stage_node
from boards.virtual.board import VirtualBoard


def test_a_module_in_memory_gives_way_to_the_installed_one(
    esp32: VirtualBoard, tmp_path: Path
) -> None:
    url = esp32.address.serial_url
    with Repl.open(url, deadline_s=30) as repl:
        repl.exec("import node\nnode.Connection = 'of an older version'", deadline_s=10)
    (tmp_path / "node.json").write_text("{}")
    node = stage_node(tmp_path / "node")
    copy_node(url, node, tmp_path / "node.json", deadline_s=60, on_line=lambda line: None)
    with Repl.open(url, deadline_s=30) as repl:
        assert repl.exec("import node\nprint(type(node.Connection))", deadline_s=10).strip() == (
            "<class 'type'>"
        )
