package spec

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	terminal    = "TERM=xterm"
	maxOOMScore = 1000 // of the kernel, see proc(5)
)

// process sets what the container's first process starts with, except its user and
// its privileges.
func (b *builder) process() error {
	args, err := processArgs(b.Config, b.Image)
	if err != nil {
		return err
	}
	p := b.spec.Process
	p.Args = args
	p.Cwd = cmp.Or(b.Config.GetWorkingDir(), b.Image.WorkingDir, "/")
	p.Terminal = b.Config.GetTty()
	p.NoNewPrivileges = b.security.GetNoNewPrivs()
	p.Env = b.environment()
	b.spec.Root.Readonly = b.security.GetReadonlyRootfs()
	if r := b.Config.GetLinux().GetResources(); r != nil {
		n := r.GetOomScoreAdj()
		if n < -maxOOMScore || n > maxOOMScore {
			return fmt.Errorf("resources.oom_score_adj: %d is out of range: use -%d to %d", n, maxOOMScore, maxOOMScore)
		}
		score := int(n)
		p.OOMScoreAdj = &score
	}
	return nil
}

// processArgs returns the command line (WithProcessArgs in opts/spec_opts.go). A command in
// the config replaces the image's entrypoint and its cmd. An entrypoint that is one empty string
// is none.
func processArgs(config *runtimeapi.ContainerConfig, image *ocispec.ImageConfig) ([]string, error) {
	command, args := config.GetCommand(), config.GetArgs()
	if len(command) == 0 {
		if len(args) == 0 {
			args = image.Cmd
		}
		if len(image.Entrypoint) != 1 || image.Entrypoint[0] != "" {
			command = image.Entrypoint
		}
	}
	if len(command)+len(args) == 0 {
		return nil, errors.New("no command specified: set command, because the image has neither entrypoint nor cmd")
	}
	return slices.Concat(command, args), nil
}

// environment returns the environment. Only a variable that was set before the image's is
// replaced in place: one that is in both image and config is listed twice, and the OCI runtime
// takes the second.
func (b *builder) environment() []string {
	env := []string{defaultPath}
	if b.Config.GetTty() {
		env = append(env, terminal)
	}
	env = append(env, "HOSTNAME="+cmp.Or(b.Sandbox.GetHostname(), b.Node.Hostname))
	overrides := slices.Clone(b.Image.Env)
	for _, e := range b.Config.GetEnvs() {
		overrides = append(overrides, e.GetKey()+"="+string(e.GetValue()))
	}
	return mergeEnv(env, overrides)
}

// mergeEnv returns env with overrides applied (replaceOrAppendEnvValues in
// pkg/oci/spec_opts.go). An override without "=" removes the variable from env.
func mergeEnv(env, overrides []string) []string {
	index := make(map[string]int, len(env))
	for i, e := range env {
		name, _, _ := strings.Cut(e, "=")
		index[name] = i
	}
	out := slices.Clone(env)
	for _, e := range overrides {
		name, _, isSet := strings.Cut(e, "=")
		i, known := index[name]
		switch {
		case known && isSet:
			out[i] = e
		case known:
			out[i] = ""
		case isSet:
			out = append(out, e)
		}
	}
	return slices.DeleteFunc(out, func(e string) bool { return e == "" })
}
