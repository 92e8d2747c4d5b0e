#pragma once
// XXH3-128 of a stream of bytes: finds damage and mix-ups, not forgery.
#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct XXH3_state_s;

namespace moesaic {

class Digest {
 public:
  Digest();
  void update(std::span<const std::byte> bytes);
  /// Of all bytes so far: 32 lower-case hexadecimal digits, most significant first.
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

std::string digest_of(std::span<const std::byte> bytes);

}  // namespace moesaic
