"""What a design costs: counts, kernel seconds, steps, serving, memory and predicted loss."""

from cost_model.accelerator import Accelerator, load_accelerator
from cost_model.prediction import Prediction, predict

__all__ = ["Accelerator", "Prediction", "load_accelerator", "predict"]
