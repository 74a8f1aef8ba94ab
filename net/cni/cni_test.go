package cni

import (
	"bytes"
	"strings"
	"testing"
)

// fake is a Network that records its calls and returns what the test has set.
type fake struct {
	config  Config
	at      Attachment
	prev    *Result
	network string
	valid   []ID
	calls   []string

	result Result
	err    error
	opened error
}

func (f *fake) open(c Config) (Network, error) {
	f.config = c
	return f, f.opened
}

func (f *fake) Setup(a Attachment) (Result, error) {
	f.calls, f.at = append(f.calls, "setup"), a
	return f.result, f.err
}

func (f *fake) Check(a Attachment, prev *Result) error {
	f.calls, f.at, f.prev = append(f.calls, "check"), a, prev
	return f.err
}

func (f *fake) Teardown(a Attachment) error {
	f.calls, f.at = append(f.calls, "teardown"), a
	return f.err
}

func (f *fake) Collect(network string, valid []ID) error {
	f.calls, f.network, f.valid = append(f.calls, "collect"), network, valid
	return f.err
}

func (f *fake) Status() error {
	f.calls = append(f.calls, "status")
	return f.err
}

// output is the result of a call.
type output struct {
	exit           int
	stdout, stderr string
}

// call calls the plugin with the environment of an attachment and the variables of env,
// such as "A=1 B=2". A= removes a variable.
func (f *fake) call(t testing.TB, env, stdin string) output {
	t.Helper()
	vars := map[string]string{
		"CNI_CONTAINERID": "c1",
		"CNI_IFNAME":      "eth0",
		"CNI_NETNS":       "/proc/1/ns/none",
		"CNI_PATH":        "/opt/cni/bin",
	}
	for pair := range strings.FieldsSeq(env) {
		name, value, _ := strings.Cut(pair, "=")
		if len(name) < 4 || name[:4] != "CNI_" {
			name = "CNI_" + name
		}
		vars[name] = value
	}
	var out, errs bytes.Buffer
	exit := Call{
		Env:    func(name string) string { return vars[name] },
		Stdin:  strings.NewReader(stdin),
		Stdout: &out,
		Stderr: &errs,
	}.Run(f.open)
	return output{exit, out.String(), errs.String()}
}

const validConfig = `{"cniVersion":"1.1.0","name":"pods","type":"tinylet-cni","ranges":[{"subnet":"10.42.0.0/24"}]`
