"""What operators see of the service: metrics and logs; never what a lookup answers."""
