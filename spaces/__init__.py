"""What can be designed: architectures, number formats, deployments and the space a study searches."""

from spaces.architecture import Architecture
from spaces.deployment import Deployment, enumerate_deployments
from spaces.design_space import DesignSpace
from spaces.huggingface import available_models, load_architecture
from spaces.quantization_config import load_recipe
from spaces.workload import Workload

__all__ = [
    "Architecture",
    "Deployment",
    "DesignSpace",
    "Workload",
    "available_models",
    "enumerate_deployments",
    "load_architecture",
    "load_recipe",
]
