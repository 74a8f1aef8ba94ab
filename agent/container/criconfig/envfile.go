package criconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// fileValue reads one variable from a file in a volume. A missing file counts
// as a missing key, as the API defines for optional. A container wrote the
// file, so errors must not quote it.
func fileValue(in *ContainerInput, ref *v1.FileKeySelector) (value string, ok bool, err error) {
	if in.Volumes[ref.VolumeName] == "" || in.ReadEnvFile == nil {
		return "", false, configErrorf("cannot find the volume %q referenced by FileKeyRef", ref.VolumeName)
	}
	data, err := in.ReadEnvFile(ref.VolumeName, ref.Path)
	if err == nil {
		value, err = parseEnvFile(string(data), ref.Key)
	}
	switch optional := isTrue(ref.Optional); {
	case errors.Is(err, fs.ErrNotExist) && optional:
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("fileKeyRef %s in volume %q: %w: %w", ref.Path, ref.VolumeName, &ConfigError{Message: "couldn't parse env file"}, err)
	case value == "" && !optional:
		return "", false, configErrorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
	}
	return value, value != "", nil
}

// parseEnvFile returns the value of the first variable of that name, or "" if
// there is none. The format is the strict subset of shell syntax that KEP-3721
// allows: lines NAME='value', where the value is literal up to the next quote
// and may span lines. # begins a comment before or after a variable. Nothing
// else is allowed. A blank after the = makes the value empty, as in a shell.
// The text after the variable is not parsed.
func parseEnvFile(data, key string) (string, error) {
	lines := &envLines{rest: data}
	for {
		line, ok := lines.next()
		if !ok {
			return "", nil
		}
		line = strings.TrimLeft(line, blanks)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, err := envLine(line, lines)
		if err != nil {
			return "", fmt.Errorf("line %d: %w", lines.number, err)
		}
		if name == key {
			return value, nil
		}
	}
}

const blanks = " \t"

func envLine(line string, lines *envLines) (name, value string, err error) {
	name, rest, ok := strings.Cut(line, "=")
	switch {
	case !ok:
		return "", "", errors.New("missing =")
	case name == "":
		return "", "", errors.New("missing name before the =")
	case strings.TrimRight(name, blanks) != name:
		return "", "", errors.New("blank before the =")
	case strings.TrimLeft(rest, blanks) != rest:
		return name, "", nil
	}
	rest, ok = strings.CutPrefix(rest, "'")
	if !ok {
		return "", "", errors.New("value is not in single quotes")
	}
	var out strings.Builder
	for {
		part, after, closed := strings.Cut(rest, "'")
		out.WriteString(part)
		if closed {
			after = strings.TrimLeft(after, blanks)
			if after != "" && after[0] != '#' {
				return "", "", errors.New("text after the closing quote")
			}
			return name, out.String(), nil
		}
		out.WriteByte('\n')
		if rest, ok = lines.next(); !ok {
			return "", "", errors.New("missing closing quote")
		}
	}
}

// envLines iterates over lines, without their ends of either kind.
type envLines struct {
	rest   string
	number int
}

func (l *envLines) next() (string, bool) {
	if l.rest == "" {
		return "", false
	}
	l.number++
	line, rest, _ := strings.Cut(l.rest, "\n")
	l.rest = rest
	return strings.TrimSuffix(line, "\r"), true
}
