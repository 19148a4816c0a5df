/* A library that has the table of libflx_with_mpi.so as another FLX would: nothing in it is what this one expects. */
__attribute__((visibility("default"))) const unsigned long long flx_mpi_part[64] = {1};
