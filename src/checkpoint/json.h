#pragma once
// JSON from outside, as base reads it.
#include "base/json.h"
