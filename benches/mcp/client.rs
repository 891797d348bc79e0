//! A client of the protocol: lines there, lines back.

use crate::Failure;
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path, process::Stdio};
use subagents::mcp::McpError;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, Lines},
    process::Child,
    task::JoinHandle,
};

pub(crate) struct Client {
    write: Box<dyn AsyncWrite + Send + Unpin>,
    read: Lines<BufReader<Box<dyn AsyncRead + Send + Unpin>>>,
    served: Option<JoinHandle<Result<(), McpError>>>,
    program: Option<Child>,
    next: u64,
}

impl Client {
    pub(crate) async fn new(
        write: impl AsyncWrite + Send + Unpin + 'static,
        read: impl AsyncRead + Send + Unpin + 'static,
        served: Option<JoinHandle<Result<(), McpError>>>,
    ) -> Result<Self, Failure> {
        let read: Box<dyn AsyncRead + Send + Unpin> = Box::new(read);
        let read = BufReader::new(read).lines();
        let mut client = Self { write: Box::new(write), read, served, program: None, next: 0 };
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"},
        });
        client.say("initialize", hello).await?;
        client.answer().await?;
        client.line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
        Ok(client)
    }

    /// Starts the program in this folder.
    #[expect(clippy::disallowed_methods, reason = "it is the program that is measured")]
    pub(crate) async fn start(folder: &Path, jobs: usize) -> Result<Self, Failure> {
        let mut program = tokio::process::Command::new(env!("CARGO_BIN_EXE_subagents"))
            .args(["mcp", "-j", &jobs.to_string()])
            .current_dir(folder)
            .env("XDG_CONFIG_HOME", folder)
            .env("XDG_RUNTIME_DIR", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (stdin, stdout) = (program.stdin.take(), program.stdout.take());
        let mut client = Self::new(stdin.ok_or("its stdin")?, stdout.ok_or("its stdout")?, None).await?;
        client.program = Some(program);
        Ok(client)
    }

    async fn line(&mut self, message: &Value) -> Result<(), Failure> {
        self.write.write_all(format!("{message}\n").as_bytes()).await?;
        Ok(self.write.flush().await?)
    }

    async fn say(&mut self, method: &str, params: Value) -> Result<u64, Failure> {
        self.next += 1;
        let id = self.next;
        self.line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
        Ok(id)
    }

    async fn answer(&mut self) -> Result<(u64, Value), Failure> {
        loop {
            let line = self.read.next_line().await?.ok_or("the server went")?;
            let mut message: Value = serde_json::from_str(&line)?;
            if let Some(id) = message["id"].as_u64() {
                return Ok((id, message["result"].take()));
            }
        }
    }

    /// What the model would read of one call.
    pub(crate) async fn call(&mut self, tool: &str, prompt: &str) -> Result<String, Failure> {
        Ok(self.calls(tool, prompt, 1).await?.remove(0))
    }

    /// The same of many calls at once, in their order.
    pub(crate) async fn calls(
        &mut self,
        tool: &str,
        prompt: &str,
        count: usize,
    ) -> Result<Vec<String>, Failure> {
        let arguments = json!({"description": "a task", "prompt": prompt});
        for _ in 0..count {
            self.say("tools/call", json!({"name": tool, "arguments": arguments})).await?;
        }
        let mut texts = BTreeMap::new();
        for _ in 0..count {
            let (id, result) = self.answer().await?;
            let text = result["content"][0]["text"].as_str().ok_or("an answer without a text")?;
            texts.insert(id, text.to_owned());
        }
        Ok(texts.into_values().collect())
    }

    /// Goes, and waits for the other side to have ended.
    pub(crate) async fn close(self) -> Result<(), Failure> {
        drop(self.write);
        if let Some(served) = self.served {
            served.await??;
        }
        if let Some(mut program) = self.program {
            let status = program.wait().await?;
            if !status.success() {
                return Err(format!("the program ended with {status}").into());
            }
        }
        Ok(())
    }
}
