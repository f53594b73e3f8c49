"""The rows of the dashboard: what is now, then from the clients inwards to the machine."""
