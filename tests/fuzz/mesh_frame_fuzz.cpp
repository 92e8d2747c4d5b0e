// What another rank may send on a data connection of a job, while this one waits for it in an all_gather.
#include <array>
#include <cstring>

#include "base/fingerprint.h"
#include "comm/tcp/tcp_mesh.h"
#include "fuzz/fuzz.h"

#include <sys/socket.h>

using namespace moesaic;

namespace {

constexpr uint64_t kToken = 42, kMagic = 0x6d6f657361696331;

/// Rank 0 of two. The other is the input.
class Alone : public Control {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 2; }
  void set_step(int64_t) override {}
  void set_operation(const std::string&) override {}
  void set_time_limit(double) override {}
  void set_waiting(const std::string&) override {}
  void abort(const std::string& message) override { message_ = message; }
  void check() const override {
    if (!message_.empty()) throw CommError(message_);
  }
  int port = 0;  // where the mesh listens

 protected:
  std::vector<std::string> all_gather_at(const std::string&, const std::string& mine) override {
    port = std::stoi(mine);
    return {mine, "1"};
  }

 private:
  std::string message_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Alone control;
  const auto mesh = std::make_shared<tcp::TcpMesh>(control, std::vector<std::string>(2, "127.0.0.1"), kToken);
  fuzz::accepts([&] {
    const auto group = mesh->communicator({0, 1});
    tcp::Socket other = tcp::start_connect({"127.0.0.1", control.port});
    tcp::wait_for(other, true, 5);
    const linger at_once{.l_onoff = 1, .l_linger = 0};  // the port is free again
    ::setsockopt(other.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    const std::array<uint64_t, 3> hello{kMagic, kToken, 1};
    other.send(hello.data(), sizeof hello);
    other.send(data, static_cast<int64_t>(size));
    std::array<std::byte, 16> send{}, receive{};
    const Pending pending = group->all_gather(group->take_sequence(), send.data(), receive.data(), 8);
    for (int i = 0; i < 4; ++i) pending();
    const Pending barrier = group->barrier(group->take_sequence());
    for (int i = 0; i < 4; ++i) barrier();
  });
  return 0;
}
