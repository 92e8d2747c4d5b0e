#pragma once
// Work that fails on all ranks or on none.
#include <string>

#include "base/error.h"
#include "comm/control.h"

namespace moesaic {

/// Runs `work`; when it throws an Error on any rank, every rank throws, as an IoError, what the first of them said.
template <class F>
void together(Control& control, const F& work) {
  std::string problem;
  try {
    work();
  } catch (const Error& error) {
    problem = error.what();
  }
  for (const std::string& other : control.all_gather(problem)) require<IoError>(other.empty(), "{}", other);
}

}  // namespace moesaic
