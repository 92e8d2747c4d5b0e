#pragma once
// The message of an exception, for tests that read it.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace moesaic {

/// The message of the E that `call` throws; a failed test and an empty text when it throws none.
template <class E = ConfigError, class F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace moesaic
