// A token file: the first two bytes say how long the index is, the rest is the ids.
#include <algorithm>
#include <vector>

#include "data/token_file.h"
#include "fuzz/fuzz.h"
#include "support/temp_folder.h"

using namespace moesaic;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  static const std::string prefix = folder / "input";
  if (size < 2) return 0;
  const std::string_view all = fuzz::text_of(data + 2, size - 2);
  const size_t length = std::min(all.size(), size_t{data[0]} + 256 * size_t{data[1]});
  spit(prefix + ".idx", std::string(all.substr(0, length)));
  spit(prefix + ".bin", std::string(all.substr(length)));
  fuzz::accepts([&] {
    const TokenFile file(prefix);
    std::vector<int32_t> tokens(static_cast<size_t>(file.num_tokens()));
    for (int64_t d = 0; d <= file.num_documents(); ++d)
      if (file.document_start(d) < 0 || file.document_start(d) > file.num_tokens()) std::abort();
    for (int64_t begin = 0; begin < std::min<int64_t>(file.num_tokens(), 8); ++begin)
      file.document_starts(begin, file.num_tokens());
    file.read(0, tokens, 1000);
  });
  return 0;
}
