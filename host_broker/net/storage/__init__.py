"""What the broker keeps in its data folder beside the journal.

``data_dir`` the folder and its lock; ``message_store`` retained messages and queues;
``deduplicator`` what numbered publishers have published; ``files`` what makes them survive a loss
of power.
"""
