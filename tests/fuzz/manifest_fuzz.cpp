// A checkpoint's manifest, under a digest that fits, and what ranks tell each other of their shards.
#include "checkpoint/digest.h"
#include "checkpoint/manifest.h"
#include "fuzz/fuzz.h"

using namespace moesaic;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const std::string digest = digest_of(std::as_bytes(std::span(text)));
  fuzz::accepts([&] {
    const Manifest manifest =
        decode_manifest(fmt::format("{{\"xxh3_128\": \"{}\",\n{}", digest, text), "input");
    for (const StoredPiece& piece : manifest.pieces)
      if (piece.file < 0 || piece.file >= static_cast<int64_t>(manifest.files.size())) std::abort();
    decode_manifest(encode_manifest(manifest), "again");
  });
  fuzz::accepts([&] { decode_manifest(text, "input"); });
  fuzz::accepts([&] { decode_shard_info(text, "input"); });
  return 0;
}
