export function startLive() {}
