package preflight

// checkSandboxImage checks the sandbox image. Each pod needs it, and a board may
// have no registry to pull it from when its first pod starts.
func checkSandboxImage(s *SandboxImage) []Finding {
	const id = "sandbox-image"
	switch {
	case s.Name == "" || s.Present == Unknown:
		return nil
	case s.Present == No:
		return []Finding{warn(id, "the sandbox image "+s.Name+" is not present: the container runtime pulls it for the first pod, which fails without a registry",
			"put an archive with an image of this name into imagesFolder, or pull it now (crictl pull "+s.Name+"), or configure one that is present: pinned_images.sandbox in /etc/containerd/config.toml, sandbox_image before containerd 2.0")}
	case s.Pinned == No:
		return []Finding{warn(id, "the sandbox image "+s.Name+" is not pinned: image garbage collection may remove it",
			"configure exactly this name in /etc/containerd/config.toml (pinned_images.sandbox, sandbox_image before containerd 2.0) and restart containerd")}
	}
	return []Finding{ok(id, "the sandbox image %s is present and pinned", s.Name)}
}
