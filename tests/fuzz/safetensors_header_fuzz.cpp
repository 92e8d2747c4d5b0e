// A safetensors file: its header, and that what the header names lies in the file.
#include <numeric>

#include "checkpoint/safetensors.h"
#include "fuzz/fuzz.h"
#include "support/temp_folder.h"

using namespace moesaic;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  static const std::string path = folder / "input.safetensors";
  spit(path, std::string(fuzz::text_of(data, size)));
  fuzz::accepts([&] {
    const SafetensorsFile file(path);
    int64_t sum = 0;
    for (const StoredTensor& tensor : file.tensors()) {
      for (const std::byte b : file.data(tensor)) sum += static_cast<int64_t>(b);
      if (file.find(tensor.name) == nullptr) std::abort();
    }
    static volatile int64_t sink;
    sink = sum;
  });
  return 0;
}
