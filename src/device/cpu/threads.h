#pragma once
// Threads inside one CPU op. A rank's thread sets its own number; a build without OpenMP runs everything on
// that thread.
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace moesaic {

/// Number of threads that ops started from this thread use from now on (OpenMP keeps it per thread).
void set_num_threads(int count);
int num_threads();
/// Denormals become zero in this thread and its OpenMP team: they slow matmuls threefold near the end of
/// training.
void flush_denormals();
/// Which thread of the team calls, 0 outside of one.
int thread_index();

/// Calls f(i) for i in [0, count) on this rank's threads; f must not throw.
template <class F>
void parallel_for(int64_t count, const F& f) {
#ifdef _OPENMP
  if (count > 1 && num_threads() > 1) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; ++i) f(i);
    return;
  }
#endif
  for (int64_t i = 0; i < count; ++i) f(i);
}

}  // namespace moesaic
