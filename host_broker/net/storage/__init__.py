"""What the broker keeps in its data folder beside the journal.

``data_dir`` the folder and its lock; ``retained_store`` retained messages; ``deduplicator`` what
numbered publishers have published; ``files`` what makes them survive a loss of power.
"""
