// The other plugin of replaced.c.
#define ALLOCATES other_plugin_allocates
#include "replaced.c"
