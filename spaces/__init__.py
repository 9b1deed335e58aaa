"""What can be designed: architectures, number formats, deployments and the space a study searches."""

from spaces.architecture import Architecture
from spaces.deployment import Deployment, enumerate_deployments
from spaces.workload import Workload

__all__ = ["Architecture", "Deployment", "Workload", "enumerate_deployments"]
