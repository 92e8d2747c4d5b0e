// A run's configuration. What is accepted must come back from its printed form.
#include "config/parse.h"
#include "config/print.h"
#include "config/validate.h"
#include "fuzz/fuzz.h"

using namespace moesaic;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Config config;
  if (!fuzz::accepts([&] { config = parse_config_text(fuzz::text_of(data, size), "input"); })) return 0;
  const std::string printed = print_config(config);
  if (print_config(parse_config_text(printed, "printed")) != printed) std::abort();
  fuzz::accepts([&] { validate_values(config); });
  return 0;
}
