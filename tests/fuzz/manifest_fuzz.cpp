// What ranks tell each other of their shards, when the first byte is 's'; otherwise the rest is a checkpoint's manifest, under a
// digest that fits.
#include "checkpoint/digest.h"
#include "checkpoint/manifest.h"
#include "fuzz/fuzz.h"

using namespace moesaic;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text = fuzz::text_of(data + 1, size - 1);
  fuzz::accepts([&] {
    if (data[0] == 's') {
      encode_shard_info(decode_shard_info(text, "input"));
      return;
    }
    const std::string digest = digest_of(std::as_bytes(std::span(text)));
    const Manifest manifest =
        decode_manifest(fmt::format("{{\"xxh3_128\": \"{}\",\n{}", digest, text), "input");
    for (const StoredPiece& piece : manifest.pieces)
      if (piece.file < 0 || piece.file >= static_cast<int64_t>(manifest.files.size())) std::abort();
    decode_manifest(encode_manifest(manifest), "again");
  });
  return 0;
}
