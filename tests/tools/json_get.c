/* json_get PATH: reads JSON on standard input and prints the value at a dotted path
 * (epochs.0.loss). Exit code 1: no JSON, or nothing there. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cJSON *step(cJSON *at, const char *name) {
    char *end = NULL;
    long index = strtol(name, &end, 10);
    return cJSON_IsArray(at) && !*end ? cJSON_GetArrayItem(at, (int)index)
                                      : cJSON_GetObjectItemCaseSensitive(at, name);
}

int main(int argc, char **argv) {
    static char text[1 << 20];
    size_t n = fread(text, 1, sizeof text - 1, stdin);
    text[n] = '\0';
    cJSON *root = cJSON_Parse(text), *at = root;
    if (argc != 2 || !root) return 1;
    for (char *name = strtok(argv[1], "."); name && at; name = strtok(NULL, ".")) {
        at = step(at, name);
    }
    char *shown = at ? cJSON_PrintUnformatted(at) : NULL;
    if (shown) puts(cJSON_IsString(at) ? at->valuestring : shown);
    int exit_code = shown ? 0 : 1;
    free(shown);
    cJSON_Delete(root);
    return exit_code;
}
