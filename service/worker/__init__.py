"""The worker: the process that owns model, tokenizer and device.

Started by exec, never forked; fed through one socketpair; killed when it hangs. Only ``runner``
and ``pipelines`` (and what they call) know torch and transformers.
"""
