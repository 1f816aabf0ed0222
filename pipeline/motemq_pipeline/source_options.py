"""A run's source as options of ``format("motemq")``; secrets as files, never as options.

And whether somebody is there who can be asked.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from motemq_pipeline.config import RunConfig, Source
from motemq_pipeline.errors import PipelineError
from pyspark_motemq.blocks import JournalError
from pyspark_motemq.options import Options
from pyspark_motemq.remote import Broker, Brokers


def source_options(source: Source, token: Path | None, reader: str = "") -> dict[str, str]:
    """Return the options for the query named ``reader``; ``token``: a file with the token."""
    secure = any(Broker.at(url).is_secure for url in source.brokers)  # of several, some may be
    options = {
        "path": str(source.journal or ""),
        "brokers": ",".join(source.brokers),
        "tokenFile": str(token or ""),
        "caFile": str(source.ca_file or "") if secure else "",
        "topics": source.topics,
        "startingOffsets": source.starting,
        "maxRowsPerTrigger": str(source.max_rows),
        "failOnDataLoss": "" if source.fail_on_data_loss else "false",
        # Each query reads on its own, so it has a position of its own.
        "group": f"{source.group}-{reader}" if source.group and reader else "",
    }
    return {name: value for name, value in options.items() if value}


def check_source(config: RunConfig, once: bool = False) -> None:
    """Raise ``PipelineError`` if there is no journal, no broker answers, or one refuses.

    That is before Spark is started.

    One of several that does not answer is no reason not to begin, unless all that there is must be
    read (``once``).
    """
    with token_file(config) as token:
        try:
            options = Options.read(source_options(config.source, token))
            if options.brokers:
                Brokers(options.brokers).check(once)
            else:
                options.journal().partitions()
        except JournalError as error:
            raise PipelineError(str(error)) from error


@contextlib.contextmanager
def token_file(config: RunConfig) -> Iterator[Path | None]:
    """Give a file with the brokers' token; one from the environment is in a file for us only.

    Raises ``PipelineError`` if the environment has none.
    """
    source = config.source
    if not source.token_env:
        yield source.token_file
        return
    token = os.environ.get(source.token_env, "")
    if not token:
        raise PipelineError(
            f"{config.file}: the environment variable {source.token_env} (token_env) is not set"
        )
    with tempfile.NamedTemporaryFile("w", prefix="motemq-token-") as file:  # mode 0600
        file.write(token)
        file.flush()
        yield Path(file.name)
