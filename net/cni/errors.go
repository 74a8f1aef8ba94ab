package cni

import (
	"errors"
	"strconv"
	"strings"
)

// Code is the kind of an error. The specification reserves the codes below 100.
type Code uint

// The codes of the specification, and the one of libcni for all other errors.
const (
	CodeIncompatibleVersion Code = 1  // the version of the configuration is not supported
	CodeUnsupportedField    Code = 2  // a field of the configuration is not supported
	CodeInvalidEnvironment  Code = 4  // a CNI_ variable is missing or invalid
	CodeIOFailure           Code = 5  // an error of reading or writing
	CodeDecodingFailure     Code = 6  // the JSON is invalid, or a value has another type
	CodeInvalidConfig       Code = 7  // a value of the configuration is invalid
	CodeTryAgainLater       Code = 11 // the condition is temporary: the runtime should retry
	CodePluginNotAvailable  Code = 50 // STATUS: no container can be attached
	CodeInternal            Code = 999
)

// maxQuoted is the maximum length of an input that an error quotes, in bytes.
const maxQuoted = 64

// Error is an error with a code for the runtime.
type Error struct {
	Code Code
	// Msg is short, and the same for all errors of a kind.
	Msg string
	// Details has the location, the cause and the remedy. It may be "".
	Details string
	// Err is the cause, or nil. Its text is not in Msg or Details.
	Err error
}

// Error returns the message, the details and the cause.
func (e *Error) Error() string {
	text := e.Msg
	if e.Details != "" {
		text += ": " + e.Details
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// encodeError encodes an error in the format of CNI. The details of an Error follow its
// message; if err wraps it, they are the whole text of err.
func encodeError(version string, err error) []byte {
	code, msg, details := CodeInternal, err.Error(), ""
	if e, ok := errors.AsType[*Error](err); ok {
		code, msg, details = e.Code, e.Msg, err.Error()
		if details == e.Error() {
			details = strings.TrimPrefix(details[len(msg):], ": ")
		}
	}
	return encode(struct {
		CNIVersion string `json:"cniVersion"`
		Code       Code   `json:"code"`
		Msg        string `json:"msg"`
		Details    string `json:"details,omitempty"`
	}{version, code, msg, details})
}

// quoteShort quotes an input, truncated to maxQuoted bytes.
func quoteShort(text string) string {
	if len(text) > maxQuoted {
		return strconv.Quote(text[:maxQuoted]) + "…"
	}
	return strconv.Quote(text)
}
