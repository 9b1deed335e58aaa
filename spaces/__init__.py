"""What can be designed: architectures, number formats, deployments and the space a study searches."""

from spaces.architecture import Architecture
from spaces.workload import Workload

__all__ = ["Architecture", "Workload"]
