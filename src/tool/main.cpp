#include "driver/commands.h"

int main(int argc, char** argv) { return tilewright::run_command(argc, argv); }
