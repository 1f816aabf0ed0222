"""``python -m benchmarks``: one sub-command per benchmark."""

import click

from benchmarks.acks.command import command as acks
from benchmarks.alerts.command import command as alerts
from benchmarks.broker.command import command as broker
from benchmarks.client.command import command as client
from benchmarks.client.size import command as size
from benchmarks.dashboard.command import command as dashboard
from benchmarks.faults.command import command as pipeline_faults
from benchmarks.fq.command import command as fq
from benchmarks.fq_disk.command import command as fq_disk
from benchmarks.journal.command import command as journal
from benchmarks.link.command import command as link
from benchmarks.pipeline.command import command as pipeline
from benchmarks.reliability.command import command as reliability
from benchmarks.rig.command import command as rig
from benchmarks.umq.command import command as umq


@click.group()
def main() -> None:
    """Measure MoteMQ against named peers."""


main.add_command(acks, "acks")
main.add_command(alerts, "alerts")
main.add_command(broker, "broker")
main.add_command(client, "client")
main.add_command(dashboard, "dashboard")
main.add_command(fq, "fq")
main.add_command(fq_disk, "fq-disk")
main.add_command(journal, "journal")
main.add_command(link, "link")
main.add_command(pipeline, "pipeline")
main.add_command(pipeline_faults, "pipeline-faults")
main.add_command(reliability, "reliability")
main.add_command(rig, "rig")
main.add_command(size, "size")
main.add_command(umq, "umq")

if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
