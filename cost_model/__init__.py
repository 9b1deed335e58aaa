"""What a design costs: counts, kernel seconds, steps, serving, memory and predicted loss."""
