#pragma once
// The parts that page.cpp puts together.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "report/page/page.h"

namespace moesaic {

/// What a run came to: cards for one run, a table for several.
std::string overview_html(const std::vector<RunData>& runs);

/// Line charts by section; "" for a section of which nothing was measured.
struct ChartSections {
  std::string loss, optimization, speed, experts;
};
ChartSections chart_sections(const std::vector<RunData>& runs, PageX x, nlohmann::ordered_json& data);

/// Tables of events, of settings in which runs differ, and each run's whole configuration.
std::string events_html(const std::vector<RunData>& runs);
std::string differences_html(const std::vector<RunData>& runs);
std::string configurations_html(const std::vector<RunData>& runs);

/// The contents of the page's <style> and <script>.
std::string_view page_style();
std::string_view page_script();

}  // namespace moesaic
