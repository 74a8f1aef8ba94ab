package cni

import (
	"errors"
	"strconv"
)

// Code is the kind of an error. The specification reserves the codes below 100.
type Code uint

// The codes of the specification, and the one of libcni for all other errors.
const (
	CodeIncompatibleVersion Code = 1  // the version of the configuration is not supported
	CodeUnsupportedField    Code = 2  // a field of the configuration is not supported
	CodeUnknownContainer    Code = 3  // the container is unknown and has nothing to tear down
	CodeInvalidEnvironment  Code = 4  // a CNI_ variable is missing or invalid
	CodeIOFailure           Code = 5  // an error of reading or writing
	CodeDecodingFailure     Code = 6  // the JSON is invalid, or a value has another type
	CodeInvalidConfig       Code = 7  // a value of the configuration is invalid
	CodeTryAgainLater       Code = 11 // the condition is temporary: the runtime should retry
	CodePluginNotAvailable  Code = 50 // STATUS: no container can be attached
	CodeLimitedConnectivity Code = 51 // STATUS: and attached containers may have no connectivity
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

// errorFields returns the fields of an error for the runtime. If err wraps an Error, the
// details are the whole text of err.
func errorFields(err error) (code Code, msg, details string) {
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
		return CodeInternal, err.Error(), ""
	case e.Error() != err.Error():
		return e.Code, e.Msg, err.Error()
	case e.Err != nil:
		return e.Code, e.Msg, joinText(e.Details, e.Err.Error())
	}
	return e.Code, e.Msg, e.Details
}

// encodeError encodes an error in the format of CNI.
func encodeError(version string, err error) []byte {
	code, msg, details := errorFields(err)
	return encode(struct {
		CNIVersion string `json:"cniVersion"`
		Code       Code   `json:"code"`
		Msg        string `json:"msg"`
		Details    string `json:"details,omitempty"`
	}{version, code, msg, details})
}

func joinText(a, b string) string {
	if a == "" {
		return b
	}
	return a + ": " + b
}

// quoteShort quotes an input, truncated to maxQuoted bytes.
func quoteShort(text string) string {
	if len(text) > maxQuoted {
		return strconv.Quote(text[:maxQuoted]) + "…"
	}
	return strconv.Quote(text)
}
