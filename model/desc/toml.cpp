// TOML by cpptoml (a header-only library that speaks C++) as JSON values.
#include <cstdio>
#include <limits>
#include <map>
#include <sstream>

#include <cpptoml.h>
#include <jansson.h>

extern "C" json_t *sf_toml_load(const char *text, size_t len, char *complaint, size_t complaint_size);

static json_t *convert(const std::shared_ptr<cpptoml::base> &node)
{
    if (node->is_table()) {
        json_t *object = json_object();
        std::map<std::string, std::shared_ptr<cpptoml::base>> sorted(node->as_table()->begin(), node->as_table()->end());
        for (const auto &member : sorted)
            json_object_set_new(object, member.first.c_str(), convert(member.second));
        return object;
    }
    if (node->is_array() || node->is_table_array()) {
        json_t *array = json_array();
        if (node->is_array())
            for (const auto &item : node->as_array()->get())
                json_array_append_new(array, convert(item));
        else
            for (const auto &item : node->as_table_array()->get())
                json_array_append_new(array, convert(item));
        return array;
    }
    if (const auto v = node->as<std::string>())
        return json_string(v->get().c_str());
    if (const auto v = node->as<bool>())
        return json_boolean(v->get());
    if (const auto v = node->as<int64_t>())
        return json_integer(v->get());
    if (const auto v = node->as<double>())
        return json_real(v->get());
    return json_string("a date");
}

json_t *sf_toml_load(const char *text, size_t len, char *complaint, size_t complaint_size)
{
    try {
        std::istringstream stream(std::string(text, len));
        return convert(cpptoml::parser(stream).parse());
    } catch (const std::exception &e) {
        snprintf(complaint, complaint_size, "%s", e.what());
    }
    return nullptr;
}
