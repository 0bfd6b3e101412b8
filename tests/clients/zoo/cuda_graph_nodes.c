// Memory nodes that are added by the general function, as CUDA 13 has it: see graph_nodes.c.
// The trace must name 18 MiB, once, though the runtime asks the driver for each node.
#define CUDA 13
#include "graph_nodes.c"
