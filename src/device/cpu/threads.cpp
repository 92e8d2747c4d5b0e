#include "device/cpu/threads.h"

#ifdef __SSE__
#include <xmmintrin.h>
#endif

namespace moesaic {
namespace {
void flush_this_thread() {
#ifdef __SSE__
  _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, denormals are zero
#endif
}
}  // namespace

#ifdef _OPENMP
void set_num_threads(int count) {
  omp_set_num_threads(count);
}
int num_threads() {
  return omp_get_max_threads();
}
int thread_index() {
  return omp_get_thread_num();
}
void flush_denormals() {
#pragma omp parallel
  flush_this_thread();
}
#else
void set_num_threads(int) {}
int num_threads() {
  return 1;
}
int thread_index() {
  return 0;
}
void flush_denormals() {
  flush_this_thread();
}
#endif

}  // namespace moesaic
