"""The one error a person sees."""


class PipelineError(Exception):
    """The pipeline cannot do its part; the text says what is wrong, where, and the remedy."""


class StoreUnavailable(PipelineError):
    """The place of the tables does not answer; that passes."""
