#pragma once

namespace tilewright::explain {

/// page.html, which reads the report where "/*REPORT*/" stands in it.
extern const char* const kPage;

}  // namespace tilewright::explain
