"""What another policy, or another number of workers, would have done to recorded traffic. Nothing is ever sent."""
