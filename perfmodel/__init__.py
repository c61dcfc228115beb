"""How long a training iteration takes on many GPUs, before anybody buys or books them."""
