#include "base/free_memory.h"

#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace tilewright {

void return_free_memory() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

}  // namespace tilewright
