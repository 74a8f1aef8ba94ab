package cni

import (
	"io"
	"strings"
)

// maxStdin is the longest document on standard input, in bytes.
const maxStdin = 1 << 20

// Call is one call of the plugin by a runtime.
type Call struct {
	// Env looks up a variable of the environment.
	Env func(name string) string
	// Stdin is read to its end; Stdout gets the answer, or the error.
	Stdin  io.Reader
	Stdout io.Writer
	// Stderr gets a word for a person who calls the plugin by hand.
	Stderr io.Writer
}

const usage = `tinylet-cni is a network plugin (CNI 0.3.0 to 1.1.0). A container runtime calls
it with CNI_COMMAND=ADD, DEL, CHECK, GC, STATUS or VERSION in the environment and
a network configuration on standard input; it is not for calling by hand.

To install it, link tinylet under the name tinylet-cni into the runtime's folder
for plugins, /opt/cni/bin in most, and name it in /etc/cni/net.d as the type of a
network. The agent writes that file itself where it runs the network.
`

// Run answers the call and gives the exit code of the process, 0 or 1. open
// makes the network of a configuration; it is not called where the call has no
// need of it or is refused. At DEL the configuration is what could be read of
// it, which may be no more than Default.
func (c Call) Run(open func(Config) (Network, error)) (exit int) {
	return c.run(parseRequest, func(t *invocation) ([]byte, error) {
		t.open = open
		return t.run()
	})
}

// run reads the call, has act do what it asks for, and writes the answer.
func (c Call) run(read func([]byte) (*request, error), act func(*invocation) ([]byte, error)) (exit int) {
	v := verb(c.Env("CNI_COMMAND"))
	if v == "" {
		_, _ = io.WriteString(c.Stderr, usage)
		return 1
	}
	data, unread := readStdin(c.Stdin)
	t := &invocation{verb: v, env: c.Env}
	t.request, t.configErr = read(data)
	if unread != nil {
		t.configErr = unread
	}
	out, err := act(t)
	if err != nil {
		out, exit = appendError(nil, t.errorVersion(), err), 1
	}
	if _, err := c.Stdout.Write(out); err != nil {
		return 1
	}
	return exit
}

// errorVersion is the version to tell an error in.
func (t *invocation) errorVersion() string {
	if _, ok := parseVersion(t.config.CNIVersion); ok {
		return t.config.CNIVersion
	}
	return NewestVersion
}

// readStdin reads to the end. What was read before an error is given as well.
func readStdin(from io.Reader) ([]byte, error) {
	data := make([]byte, 0, 4096)
	for {
		n, err := from.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case err == io.EOF:
			return data, nil
		case err != nil:
			return data, &Error{Code: CodeIOFailure, Msg: "the network configuration cannot be read from standard input", Err: err}
		case len(data) > maxStdin:
			return data, configError(CodeInvalidConfig, "", "it is longer than 1 MiB: is the configuration on standard input?")
		case len(data) == cap(data):
			data = append(data, 0)[:len(data)]
		}
	}
}

// minVersion is the first version that has a verb.
func (v verb) minVersion() specVersion {
	switch v {
	case check:
		return spec040
	case gc, status:
		return spec110
	case add, del, version:
	}
	return spec030
}

// checkVersion is why a verb cannot be had in a version, or nil.
func checkVersion(v verb, cniVersion string) *Error {
	s, ok := parseVersion(cniVersion)
	switch {
	case cniVersion == "":
		return configError(CodeIncompatibleVersion, "cniVersion", `is missing, which means 0.2.0: write "cniVersion": "`+DefaultVersion+`"`)
	case !ok:
		return configError(CodeIncompatibleVersion, "cniVersion", quoteShort(cniVersion)+" is not spoken: write one of "+strings.Join(versions[:], ", "))
	case s < v.minVersion():
		return configError(CodeIncompatibleVersion, "cniVersion", cniVersion+" has no "+string(v)+": write "+versions[v.minVersion()]+" or newer")
	}
	return nil
}
