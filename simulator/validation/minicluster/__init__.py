"""Does the simulator predict what real torch.distributed does on a minicluster?

Measured side (runs on every rank, needs torch):
virtual_device   a clock that computes by sleeping, and the spans of what it computed
emulated         layers of a model as autograd functions on the virtual device
strategies       the real runtimes: DDP, FSDP2, ZeRO-1, pipelines, tensor and context parallelism
runner           some steps of one case on one rank
Predicted side:
recipe           from a cluster and a workload to what each rank is asked to run
"""
