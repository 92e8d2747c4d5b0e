// A config.json of Hugging Face: read as a model of its family, and what was read is written and read again.
#include "base/json.h"
#include "fuzz/fuzz.h"
#include "hf/family.h"

using namespace moesaic;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] {
    nlohmann::json object = parse_json(fuzz::text_of(data, size), "input");
    require<IoError>(object.is_object(), "input: expected one JSON object");
    const HfConfig config(std::move(object), "input");
    const Family& family = family_of(config);
    const ModelConfig model = read_model(family, config);
    config.not_understood();
    if (!family.problem(model).empty()) std::abort();  // a family can say what it has read
    const HfConfig again(write_model(family, model, nullptr), "again");
    read_model(family_of(again), again);
  });
  return 0;
}
