package cni

import (
	"io"
	"strings"
)

// maxStdin is the maximum length of the network configuration, in bytes.
const maxStdin = 1 << 20

// Call is one call of the plugin by a runtime.
type Call struct {
	// Env returns an environment variable.
	Env func(name string) string
	// Stdin is read to its end. Stdout receives the result or the error.
	Stdin  io.Reader
	Stdout io.Writer
	// Stderr receives the usage if the environment has no CNI_COMMAND.
	Stderr io.Writer
}

const usage = `tinylet-cni is a network plugin (CNI 0.3.0 to 1.1.0). A container runtime executes
it with CNI_COMMAND=ADD, DEL, CHECK, GC, STATUS or VERSION in the environment and
a network configuration on standard input. It is not a command for users.

To install it, link tinylet as tinylet-cni into the runtime's plugin directory,
usually /opt/cni/bin, and set tinylet-cni as the type of a network in
/etc/cni/net.d. The agent writes that file if it manages the pod network.
`

// Run executes the call and returns the exit code of the process, 0 or 1. open returns the
// network of a configuration. Run does not call open if the verb does not need the network
// or the call is invalid. For DEL the configuration has the fields that can be read; the
// others are those of Default.
func (c Call) Run(open func(Config) (Network, error)) (exit int) {
	return c.run(parseRequest, func(i *invocation) ([]byte, error) {
		i.open = open
		return i.run()
	})
}

// run reads the input, calls execute for the verbs other than VERSION, and writes the output
// or the error.
func (c Call) run(parse func([]byte) (*request, error), execute func(*invocation) ([]byte, error)) (exit int) {
	v := verb(c.Env("CNI_COMMAND"))
	if v == "" {
		_, _ = io.WriteString(c.Stderr, usage)
		return 1
	}
	data, readErr := readStdin(c.Stdin)
	i := &invocation{verb: v, env: c.Env}
	i.request, i.configErr = parse(data)
	if readErr != nil {
		i.configErr = readErr
	}
	var out []byte
	var err error
	switch v {
	case add, del, check, gc, status:
		out, err = execute(i)
	case version:
		out = encodeVersions(i.config.CNIVersion)
	default:
		err = environmentError(invalidVariable("CNI_COMMAND", string(v), "write ADD, DEL, CHECK, GC, STATUS or VERSION"))
	}
	if err != nil {
		out, exit = encodeError(i.errorVersion(), err), 1
	}
	if _, err := c.Stdout.Write(out); err != nil {
		return 1
	}
	return exit
}

// errorVersion returns the version for the error's format: that of the configuration if it
// is supported, or else the newest one.
func (i *invocation) errorVersion() string {
	if _, ok := parseVersion(i.config.CNIVersion); ok {
		return i.config.CNIVersion
	}
	return NewestVersion
}

// readStdin reads to the end. With an error it returns what it has read before.
func readStdin(from io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxStdin+1))
	switch {
	case err != nil:
		return data, &Error{Code: CodeIOFailure, Msg: "cannot read the network configuration from standard input", Err: err}
	case len(data) > maxStdin:
		return data, configError(CodeInvalidConfig, "", "longer than 1 MiB: is the network configuration on standard input?")
	}
	return data, nil
}

// minVersions are the first versions of CNI that have a verb; spec030 has all others.
var minVersions = map[verb]specVersion{check: spec040, gc: spec110, status: spec110}

// checkVersion returns an error if the version is not supported or does not have the verb.
func checkVersion(v verb, cniVersion string) error {
	s, ok := parseVersion(cniVersion)
	switch {
	case cniVersion == "":
		return configError(CodeIncompatibleVersion, "cniVersion", `is missing, which means 0.2.0: write "cniVersion": "`+DefaultVersion+`"`)
	case !ok:
		return configError(CodeIncompatibleVersion, "cniVersion", quoteShort(cniVersion)+" is not supported: write one of "+strings.Join(versions[:], ", "))
	case s < minVersions[v]:
		return configError(CodeIncompatibleVersion, "cniVersion", cniVersion+" has no "+string(v)+": write "+versions[minVersions[v]]+" or newer")
	}
	return nil
}
