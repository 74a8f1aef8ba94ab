package ginkgo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Exception is tests that are not run or need not pass, and why. In a file it has the
// keys match and reason, and no others.
type Exception struct {
	Match  *regexp.Regexp
	Reason string
}

// UnmarshalJSON refuses unknown keys, an expression that is empty or does not compile,
// and an empty reason.
func (x *Exception) UnmarshalJSON(data []byte) error {
	var listed struct {
		Match  string `json:"match"`
		Reason string `json:"reason"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&listed); err != nil {
		return err
	}
	match, err := Compile(listed.Match)
	if err != nil {
		return err
	}
	x.Match, x.Reason = match, strings.Join(strings.Fields(listed.Reason), " ")
	if x.Reason == "" {
		return fmt.Errorf("%q has no reason", listed.Match)
	}
	return nil
}

// Compile compiles an expression that selects tests by name. It refuses an empty one,
// which would select all.
func Compile(expression string) (*regexp.Regexp, error) {
	if expression == "" {
		return nil, errors.New("an expression is empty")
	}
	return regexp.Compile(expression)
}
