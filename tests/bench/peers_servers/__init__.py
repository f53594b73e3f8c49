"""Other servers with the same model, each as its own papers show it: started by ``peers``.

Each module runs in an environment of its own, with nothing of this project's package in it. The
model is a plain ``transformers`` pipeline that gets what the server batched (``model``); what can
be set comes in one variable of the environment (``knobs``).
"""
