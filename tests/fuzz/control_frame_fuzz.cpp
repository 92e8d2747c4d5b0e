// The control channel: bytes as they come from the network, in parts, and what rank 0 makes of the frames. The first byte says
// how large the parts are and whose the bytes are.
#include "fuzz/fuzz.h"
#include "launch/control_hub.h"

using namespace moesaic;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t part = 1 + data[0] % 64;
  const int64_t rank = data[0] / 64 % 3;
  size_t sent = 0;
  ControlHub hub(3, 10,
                 {.one = [&](int64_t, const Frame& frame) { sent += encode(frame).size(); },
                  .all = [&](const Frame& frame) { sent += encode(frame).size(); }});
  hub.begin(0);
  FrameReader reader(1 << 20);
  fuzz::accepts([&] {
    double now = 0;
    for (size_t at = 1; at < size; at += part) {
      reader.add(reinterpret_cast<const char*>(data) + at, std::min(part, size - at));
      for (Frame frame; reader.next(frame);) {
        const std::string again = encode(frame);
        FrameReader second(1 << 20);
        second.add(again.data(), again.size());
        Frame same;
        if (!second.next(same) || same.numbers != frame.numbers || same.texts != frame.texts) std::abort();
        hub.on_frame(rank, frame, now);
        hub.tick(now += 1);
      }
    }
  });
  return 0;
}
