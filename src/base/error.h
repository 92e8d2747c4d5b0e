#pragma once
// The four kinds of failure that a user, a machine or a peer can cause. Each message is one clear sentence: what was
// expected, what was found, what to do. A bug of our own is a MOESAIC_CHECK (check.h), never one of these.
#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace moesaic {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// A value or a combination of values that cannot be run; thrown before any memory is taken where it can be known.
struct ConfigError : Error {
  using Error::Error;
};
/// A file that is missing, damaged, too large or refused by the system.
struct IoError : Error {
  using Error::Error;
};
/// A rank that died, hung, or disagreed with the others.
struct CommError : Error {
  using Error::Error;
};
/// A device that is absent, too old, out of memory or failing.
struct DeviceError : Error {
  using Error::Error;
};

/// Throws E with a formatted message: fail<ConfigError>("n = {} does not divide S = {}", n, S).
template <class E, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws E with the message unless `ok`.
template <class E, class... Args>
void require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) throw E(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace moesaic
